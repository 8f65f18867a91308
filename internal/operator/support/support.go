// Package support writes the bundle of files for a bug report. It removes known secrets from text, and lists in the bundle what is in
// it and what could not be collected.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Bundle is a tar file, compressed by gzip, that is being written.
type Bundle struct {
	dir     string
	at      time.Time
	zip     *gzip.Writer
	tar     *tar.Writer
	secrets [][]byte
	size    int
	listed  []string
	missing []string
	err     error // of the first write that failed
}

// New begins a bundle, in which all files are below dir.
func New(w io.Writer, dir string, at time.Time) *Bundle {
	zip := gzip.NewWriter(w)
	return &Bundle{dir: dir, at: at, zip: zip, tar: tar.NewWriter(zip)}
}

// shortest is the length of a text from which it counts as a secret: a shorter one would remove ordinary words.
const shortest = 8

// Hide has a secret removed from all text that is added later.
func (b *Bundle) Hide(secret string) {
	if secret = strings.TrimSpace(secret); len(secret) >= shortest {
		b.secrets = append(b.secrets, []byte(secret))
	}
}

// MaxSize bounds the bundle, before it is compressed.
const MaxSize = 64 << 20

// removed stands for a secret.
var removed = []byte("(secret removed)")

// Text adds a text, which what describes in a few words, without the secrets. An error is listed instead.
func (b *Bundle) Text(name, what string, text []byte, err error) {
	for _, secret := range b.secrets {
		text = bytes.ReplaceAll(text, secret, removed)
	}
	if err == nil && b.size+len(text) > MaxSize {
		err = fmt.Errorf("the bundle would be larger than %d MiB", MaxSize>>20)
	}
	if err != nil {
		b.Missing(name, err)
		return
	}
	b.size += len(text)
	b.listed = append(b.listed, fmt.Sprintf("%s: %s", name, what))
	b.write(name, text)
}

// Missing lists what could not be collected.
func (b *Bundle) Missing(name string, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, secret := range b.secrets {
		text = strings.ReplaceAll(text, string(secret), string(removed))
	}
	b.missing = append(b.missing, name+": "+text)
}

func (b *Bundle) write(name string, data []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(b.dir, name), Mode: 0o600, Size: int64(len(data)), ModTime: b.at})
	if b.err == nil {
		_, b.err = b.tar.Write(data)
	}
}

// NotCollected returns what could not be collected, with the reasons.
func (b *Bundle) NotCollected() []string { return b.missing }

// Has reports whether the bundle has a file whose name begins with one of the prefixes.
func (b *Bundle) Has(prefixes ...string) bool {
	return slices.ContainsFunc(b.listed, func(line string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
	})
}

// Close adds README.txt, which begins with about, and ends the bundle.
func (b *Bundle) Close(about string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\nFiles:\n", strings.TrimSpace(about))
	for _, line := range b.listed {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	if len(b.missing) > 0 {
		text.WriteString("\nNot collected:\n")
	}
	for _, line := range b.missing {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	b.write("README.txt", []byte(text.String()))
	return errors.Join(b.err, b.tar.Close(), b.zip.Close())
}
