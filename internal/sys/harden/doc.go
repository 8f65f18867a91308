// Package harden keeps a process able to act while memory is short and the disk is stalled, and keeps its secrets out of core
// dumps.
//
// [Protect] keeps the program's pages in memory, makes the OOM killer prefer other processes, and starts the threads that the
// Go runtime needs. It locks memory in one of two ways:
//
//   - Without a limit (RLIMIT_MEMLOCK is infinite, or the process has CAP_IPC_LOCK), everything: the program's file is read and
//     locked as a whole, the rest when it is touched (mlockall with MCL_ONFAULT). All processes of one program share its pages,
//     so a second process that locks them costs page tables only.
//   - With a limit, the program if it fits, and the pages that the rehearsal has touched, one by one. MCL_FUTURE is not an option
//     there: the kernel charges a mapping in full, touched or not, and the Go runtime ends the process when mmap fails.
//
// It does not keep the kernel from reclaiming what system calls need, and it does not lock the memory of other processes:
// locks are not inherited. [WithChildScore] starts children without this process's OOM score.
package harden
