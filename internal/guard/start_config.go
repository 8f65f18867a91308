package guard

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// configFD is the file descriptor at which a daemon finds its [StartConfig], and resultFD that of Options.Result.
// configVariable is set in its environment if there is a configuration.
const (
	configFD       = 5
	resultFD       = 6
	configVariable = "ZKELECTD_START_CONFIG"
)

// StartConfig is what a daemon is given of the configuration files when it starts.
type StartConfig struct {
	// Main is the content of the main file as the guard has read it; nil if the daemon is to read the file. With Once
	// the file cannot be read again.
	Main []byte `json:"main"`
	Once bool   `json:"once,omitempty"`
	// Last is what the previous daemon has passed to [Client.SetLastConfig]; nil at the first start, unless
	// Options.LastConfig was set.
	Last []byte `json:"last"`
}

// SetLastConfig gives the guard the configuration in force, for the next daemon.
func (c *Client) SetLastConfig(content []byte) { c.send(message{Kind: kindConfig, Config: content}) }

// ReadStartConfig returns what the guard has given to this daemon. It must be called only once, and before anything
// reads the environment or starts a process.
func ReadStartConfig() StartConfig {
	var c StartConfig
	if os.Getenv(configVariable) == "" {
		return c
	}
	os.Unsetenv(configVariable)
	file := os.NewFile(configFD, "the configuration")
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil || json.Unmarshal(content, &c) != nil {
		return StartConfig{} // as at a first start
	}
	return c
}

// ResultFile returns Options.Result in a daemon whose guard has one. It must be called before anything starts a
// process.
func ResultFile() *os.File {
	unix.CloseOnExec(resultFD)
	return os.NewFile(resultFD, "the result")
}

// descriptor returns the file descriptor of a file that may be nil, as os.ProcAttr takes it.
func descriptor(f *os.File) uintptr {
	if f == nil {
		return ^uintptr(0) // closed in the new process
	}
	return f.Fd()
}

// setLastConfig stores a copy of the configuration in force.
func (g *guard) setLastConfig(content []byte) {
	g.lastConfig = append(make([]byte, 0, len(content)), content...)
}

// startConfigFile returns an open file with what the next daemon is given; nil if that is nothing.
func (g *guard) startConfigFile() *os.File {
	c := StartConfig{Last: g.lastConfig, Once: g.opt.ConfigOnce}
	if c.Last == nil || c.Once {
		c.Main = g.opt.Config
	}
	if c.Main == nil && c.Last == nil {
		return nil
	}
	content, err := json.Marshal(c)
	if err != nil {
		return nil // cannot happen
	}
	file, err := memoryFile("zkelectd-config", content)
	if err != nil {
		g.log.Warn("starting the daemon without the configuration that this process knows", "err", err)
		return nil
	}
	return file
}
