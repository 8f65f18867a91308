package status

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain keeps what others wrote into ZooKeeper from steering the terminal, or from breaking or turning round a line.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// PlainJSON does the same for JSON, without a loss: what is not printable becomes an escape, which readers of JSON turn back.
// encoding/json escapes only the control characters of ASCII: those of C1 and what turns the direction of text round it does not.
func PlainJSON(text []byte) []byte {
	var b bytes.Buffer
	begun := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if ascii := r < utf8.RuneSelf && r != 0x7f; ascii || unicode.IsPrint(r) {
			i += size
			continue
		}
		b.Write(text[begun:i])
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		i += size
		begun = i
	}
	if begun == 0 {
		return text
	}
	b.Write(text[begun:])
	return b.Bytes()
}
