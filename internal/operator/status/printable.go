package status

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns s with a ? for each character that is not printable. Text from ZooKeeper, which others may have written,
// cannot control the terminal then, nor break or reverse a line.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// PrintableJSON does the same for JSON without a loss: characters that are not printable become escapes. encoding/json escapes
// the control characters of ASCII only, but not those of C1 and those that change the direction of text.
func PrintableJSON(text []byte) []byte {
	var b bytes.Buffer
	copied := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if ascii := r < utf8.RuneSelf && r != 0x7f; ascii || unicode.IsPrint(r) {
			i += size
			continue
		}
		b.Write(text[copied:i])
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		i += size
		copied = i
	}
	if copied == 0 {
		return text
	}
	b.Write(text[copied:])
	return b.Bytes()
}
