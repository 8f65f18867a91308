// Package hostfault provides faults of a host, for tests and the fault campaign: a disk that stalls, control groups
// with limits, and a program that fills memory. It needs root, /dev/fuse and the controllers of control groups version
// 1.
package hostfault
