// Package arch holds the house's import arrows: its test fails when one is added that the design does not have.
package arch
