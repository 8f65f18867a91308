// Package testhelper holds helpers for the tests of several packages: the program, documents with a generated part, and
// reports of data races in the processes that tests start.
package testhelper
