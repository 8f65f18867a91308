// Package memlock keeps a process able to act while memory is short and the disk stands still. The program's pages stay in
// memory, the OOM killer looks elsewhere first, and the threads that the Go runtime needs exist beforehand.
//
// [Protect] locks memory in one of two ways:
//
//   - Without a limit (RLIMIT_MEMLOCK is infinite, or CAP_IPC_LOCK), everything: the program's file is read and locked as a
//     whole, the rest as it is touched (mlockall with MCL_ONFAULT). All processes of one program share its pages, so a second
//     process that locks them costs page tables only.
//   - With a limit, the program if it fits, and what the rehearsal has touched, page by page. MCL_FUTURE is out of the question there: the kernel
//     charges a mapping in full, touched or not, and the Go runtime ends the process when mmap fails.
//
// It does not keep the kernel from reclaiming what system calls need, and no memory of other processes is locked: locks are
// not inherited. [Inherited] starts children without the OOM score.
package memlock
