package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// durationValue is a flag with a duration, which may have days.
type durationValue time.Duration

// durationFlag adds a flag with a duration, which may have days.
func durationFlag(c *command, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	c.Flags().Var((*durationValue)(into), name, usage)
}

var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d(.*)$`)

// Set implements pflag.Value.
func (d *durationValue) Set(text string) error {
	rest, total := text, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n > 36500 {
			return fmt.Errorf("%q: at most 36500 days", text)
		}
		if total, rest = time.Duration(n*24*float64(time.Hour)), m[2]; rest == "" {
			rest = "0s"
		}
	}
	v, err := time.ParseDuration(rest)
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, as in 90s, 30m, 12h or 2d", text)
	}
	*d = durationValue(total + v)
	return nil
}

// String implements pflag.Value.
func (d *durationValue) String() string {
	if *d == 0 {
		return "0" // which the help does not show as a default
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *durationValue) Type() string { return "duration" }
