package guard

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// configFD is where a daemon that was started again finds the last good configuration file, behind the socket and the pipe;
// configVariable is in its environment if there is one.
const (
	configFD       = 5
	configVariable = "ZKELECTD_LAST_CONFIG"
)

// KeepConfig hands the guard the content of a configuration file that was found good, for the time after this daemon's death.
func (c *Client) SetLastConfig(content []byte) { c.send(message{Kind: kindConfig, Config: content}) }

// LastConfig returns what a daemon before this one has handed over by [Client.KeepConfig]; nil where there was none, as at
// the first start. It is called once, before anything is started or reads the environment.
func LastConfig() []byte {
	if os.Getenv(configVariable) == "" {
		return nil
	}
	os.Unsetenv(configVariable)
	file := os.NewFile(configFD, "the last good configuration")
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		return nil // as at a first start
	}
	return content
}

// keepConfig keeps a configuration that is good, even an empty one.
func (g *guard) keepConfig(content []byte) {
	g.config = append(make([]byte, 0, len(content)), content...)
}

// lastConfig returns a file with the last good configuration for a new daemon; nil if there is none.
func (g *guard) lastConfig() *os.File {
	if g.config == nil {
		return nil
	}
	fd, err := unix.MemfdCreate("zkelectd-config", unix.MFD_CLOEXEC)
	if err == nil {
		file := os.NewFile(uintptr(fd), "zkelectd-config")
		if _, err = file.Write(g.config); err == nil {
			if _, err = file.Seek(0, io.SeekStart); err == nil {
				return file
			}
		}
		file.Close()
	}
	g.log.Warn("the daemon is started again without the last good configuration", "err", err)
	return nil
}
