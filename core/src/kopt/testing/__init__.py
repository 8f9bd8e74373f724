"""Contract test classes, fakes and tiny problems for plugin authors."""
