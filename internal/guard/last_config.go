package guard

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// configFD is the file descriptor at which a restarted daemon finds the last good configuration file. configVariable is set in
// its environment if there is one.
const (
	configFD       = 5
	configVariable = "ZKELECTD_LAST_CONFIG"
)

// SetLastConfig gives the guard the content of a configuration file that is known to be good, for the next daemon.
func (c *Client) SetLastConfig(content []byte) { c.send(message{Kind: kindConfig, Config: content}) }

// LastConfig returns what the previous daemon has passed to [Client.SetLastConfig]; nil if there was none, as at the first
// start. It must be called only once, and before anything reads the environment or starts a process.
func LastConfig() []byte {
	if os.Getenv(configVariable) == "" {
		return nil
	}
	os.Unsetenv(configVariable)
	file := os.NewFile(configFD, "the last good configuration")
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		return nil // as at the first start
	}
	return content
}

// setLastConfig stores a copy of a good configuration file, even of an empty one.
func (g *guard) setLastConfig(content []byte) {
	g.lastConfig = append(make([]byte, 0, len(content)), content...)
}

// lastConfigFile returns an open file with the last good configuration for a new daemon; nil if there is none.
func (g *guard) lastConfigFile() *os.File {
	if g.lastConfig == nil {
		return nil
	}
	fd, err := unix.MemfdCreate("zkelectd-config", unix.MFD_CLOEXEC)
	if err == nil {
		file := os.NewFile(uintptr(fd), "zkelectd-config")
		if _, err = file.Write(g.lastConfig); err == nil {
			if _, err = file.Seek(0, io.SeekStart); err == nil {
				return file
			}
		}
		file.Close()
	}
	g.log.Warn("restarting the daemon without the last good configuration", "err", err)
	return nil
}
