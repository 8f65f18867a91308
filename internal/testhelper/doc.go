// Package testhelper holds helpers for the tests of several packages: documents with a generated part, and reports of data races
// in the logs of processes.
package testhelper
