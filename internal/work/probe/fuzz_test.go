package probe

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

func FuzzParseNotification(f *testing.F) {
	f.Add("READY=1\nSTATUS=up=1\n")
	f.Add("X_ZKELECTD_VALUE=a=\xff\nX_ZKELECTD_VALUE=" + strings.Repeat("é", cluster.MaxValue))
	f.Add("STATUS\nREADY=\nREADY=11")
	f.Fuzz(func(t *testing.T, message string) {
		n := parseNotification(message)
		if n.ready != strings.Contains("\n"+message+"\n", "\nREADY=1\n") {
			t.Errorf("%q is ready: %t", message, n.ready)
		}
		for _, text := range n.texts {
			if strings.Contains(text, "\n") || !strings.Contains(message, text) {
				t.Errorf("%q has the status %q", message, text)
			}
		}
		if v := n.value; v != nil && (len(*v) > cluster.MaxValue || strings.Contains(*v, "\n") || !utf8.ValidString(*v)) {
			t.Errorf("%q has the value %q", message, *v)
		}
	})
}

func FuzzParseNumber(f *testing.F) {
	for _, text := range []string{"7", " 0.5 percent\n", "-1e300", "-1e999", "NaN", "Inf", "-infinity", "0x1p-2", "1_000", " \n\t\n", "9007199254740992", "-9007199254740993"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseNumber(text); err != nil && (n != 0 || len(err.Error()) > 300) {
			t.Errorf("%q: %v, %v", text, n, err)
		} else if math.IsNaN(n) || math.IsInf(2*n, 0) {
			t.Errorf("%q is %v", text, n)
		} else if whole, ok := new(big.Int).SetString(strings.TrimSpace(text), 10); ok && err == nil {
			if back, _ := big.NewFloat(n).Int(nil); back.Cmp(whole) != 0 {
				t.Errorf("%q became %v", text, back)
			}
		}
	})
}

// The kernel creates the credentials, but the sender can attach other control messages.
func FuzzSender(f *testing.F) {
	f.Add([]byte{28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, control []byte) { parseControl(control) })
}
