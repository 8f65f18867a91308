package guard

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// The first daemon gets the configuration file that the guard has read, even an empty one. Later ones get what was in
// force last.
func TestStartConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		main, last []byte
		once       bool
		want       StartConfig
	}{
		"no file":       {},
		"first":         {main: []byte("a"), want: StartConfig{Main: []byte("a")}},
		"first, empty":  {main: []byte{}, want: StartConfig{Main: []byte{}}},
		"again":         {main: []byte("a"), last: []byte("b"), want: StartConfig{Last: []byte("b")}},
		"again, empty":  {last: []byte{}, want: StartConfig{Last: []byte{}}},
		"pipe":          {main: []byte("a"), once: true, want: StartConfig{Main: []byte("a"), Once: true}},
		"again, a pipe": {main: []byte("a"), last: []byte("b"), once: true, want: StartConfig{Main: []byte("a"), Once: true, Last: []byte("b")}},
	} {
		g := &guard{opt: Options{Config: c.main, ConfigOnce: c.once}}
		if c.last != nil {
			g.setLastConfig(c.last)
		}
		file := g.startConfigFile()
		if file == nil {
			if c.main != nil || c.last != nil {
				t.Errorf("%s: no file", name)
			}
			continue
		}
		content, err := io.ReadAll(file)
		file.Close()
		var got StartConfig
		if err := errors.Join(err, json.Unmarshal(content, &got)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// A configuration that is too large for the guard is not lost in silence: a crash would apply an older one, or the files.
func TestAConfigurationThatIsTooLarge(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.SetLastConfig(make([]byte, maxFrame))
	if log := c.logText.String(); !strings.Contains(log, "a config message of") {
		t.Error(log)
	}
}
