// Package faults contains the fault campaign: real daemons with real children use a real ensemble of three servers
// under seeded faults. The children write a ledger, which shows whether S1 held. The package contains only tests.
package faults
