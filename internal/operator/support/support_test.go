package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestBundle(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := New(&out, "report", time.Unix(0, 0))
	b.Hide("a secret of a user\n")
	b.Hide("short")
	b.Text("log.txt", "the log", []byte("it has a secret of a user, in short"), nil)
	b.Text("none.txt", "nothing", nil, errors.New("no permission for a secret of a user\nat all"))
	b.Text("big", "too large", make([]byte, MaxSize+1), nil)
	if err := b.Close("What this is."); err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	zip, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Errorf("%s: %o, %v", h.Name, h.Mode, err)
		}
		files[h.Name] = string(data)
	}
	const readme = "What this is.\n\nFiles:\n  log.txt: the log\n\nNot collected:\n" +
		"  none.txt: no permission for (secret removed); at all\n  big: the bundle would be larger than 64 MiB\n"
	if len(files) != 2 || files["report/log.txt"] != "it has (secret removed), in short" || files["report/README.txt"] != readme {
		t.Errorf("%q", files)
	}
	if all := b.NotCollected(); len(all) != 2 || !strings.HasPrefix(all[0], "none.txt: ") {
		t.Errorf("%q", all)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestBundleThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := New(fullDisk{}, "report", time.Unix(0, 0))
	b.Text("log.txt", "the log", []byte("text"), nil)
	if err := b.Close(""); err == nil {
		t.Error("a full disk is not reported")
	}
}
