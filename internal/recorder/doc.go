// Package recorder is the flight recorder of a daemon: it keeps what the pure core was given lately and what it returned, in two files
// of bounded size. It never blocks: records that the disk does not take in time are lost, and the recording says so. It does not
// interpret recordings; package replay does.
package recorder
