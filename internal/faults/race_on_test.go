//go:build race

package faults

const race = true
