$header
$opening
$steps
extern "C" void $entry($parameters) {
$calls
}
