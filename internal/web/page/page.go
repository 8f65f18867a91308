// Package page contains the daemon's web page, a single screen that shows the group. It uses the HTTP API.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

//go:embed index.html page.css *.js icon.svg
var files embed.FS

// media are the media types of the files, so that browsers need not guess.
var media = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// policy lets the page load only its own files and connect only to its own daemon. Names and reasons come from anyone
// who may write to ZooKeeper: should one ever get into the page as markup, it still has no effect.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handlers returns the handlers of the page's files by path.
func Handlers() map[string]http.HandlerFunc {
	all := make(map[string]http.HandlerFunc)
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("page: " + err.Error()) // they are part of the binary
	}
	for _, e := range entries {
		where := "/" + e.Name()
		if e.Name() == "index.html" {
			where = "/"
		}
		all[where] = file(e.Name())
	}
	return all
}

func file(name string) http.HandlerFunc {
	data, err := files.ReadFile(name)
	if err != nil {
		panic("page: " + err.Error())
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", media[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // revalidate each time: a new daemon may have another page
		h.Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
}
