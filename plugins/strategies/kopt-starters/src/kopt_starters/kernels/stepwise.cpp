$header
$lanes
$functions
$statistics
$ranges
$loops
$steps
extern "C" void $entry($parameters) {
$calls
}
