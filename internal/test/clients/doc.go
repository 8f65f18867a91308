// Package clients tests the clients for applications, in Go (package client), Python and Java (clients/), with real
// daemons and interpreters, and with paused processes. The package contains only tests.
package clients
