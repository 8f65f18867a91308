package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// EnvConfig is the environment variable that names the configuration file of a command.
const EnvConfig = envPrefix + "CONFIG"

// Places are where a command looks for its configuration.
type Places struct {
	// HostFile is the configuration file of this host's daemon, which is read if nothing else says how to connect.
	HostFile string
	Getenv   func(string) string
	// Explicit is the file that a flag names.
	Explicit string
	// Argument is a file that the command was given for another purpose; it counts if it says how to connect.
	Argument string
	// HostOnly is set for a command about the daemon of this host.
	HostOnly bool
	// Enough is the setting that makes other places unnecessary, if a flag or the environment has it; by default the servers.
	Enough string
}

// Find adds to src the file from which a command takes what flags and environment do not say: exactly one, as its servers and its
// credentials belong together. A file that nobody has named for this command is left out if a flag or the environment names the
// servers. Credentials of one source for servers of another are refused when the sources are read.
func (p Places) Find(src Sources) (Sources, error) {
	switch named := p.Getenv(EnvConfig); {
	case p.Explicit != "":
		src.File, src.Complete = p.Explicit, !p.HostOnly && p.Explicit != p.HostFile
	case p.Argument != "" && saysHowToConnect(p.Argument):
		src.File, src.Complete = p.Argument, true
	case named != "":
		src.File = named
	case !src.have(cmp.Or(p.Enough, serversKey)):
		var err error
		src.File, err = p.hostFile()
		return src, err
	}
	return src, nil
}

// have reports whether a flag or the environment has a setting.
func (src Sources) have(key string) bool {
	values := make(map[string]found)
	var errs Errors // reported when the sources are read
	readEnv(src.Env, values, &errs)
	readFlags(src.Flags, values, &errs)
	_, ok := values[key]
	return ok
}

// UnreadableError is the error for the configuration of this host's daemon if this user may not read it.
type UnreadableError struct{ File string }

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%s says how to connect, but this user may not read it: use sudo, name a file of your own with --config, or the servers with --zk", e.File)
}

// hostFile returns the configuration file of this host's daemon; empty if there is none.
func (p Places) hostFile() (string, error) {
	file, err := os.Open(p.HostFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, fs.ErrPermission):
		return "", &UnreadableError{p.HostFile}
	case err != nil:
		return "", fmt.Errorf("%s: cannot be read: %w", p.HostFile, errors.Unwrap(err))
	}
	return p.HostFile, file.Close()
}

// saysHowToConnect reports whether a configuration file has settings of the connection. What is wrong with the file is reported when
// it is read for its other settings.
func saysHowToConnect(file string) bool {
	var errs Errors
	data := readFile(file, &errs)
	if data == nil {
		return false
	}
	settings, _ := parseFile(file, data, &errs)
	for key := range settings {
		if strings.HasPrefix(key, zookeeperSection) {
			return true
		}
	}
	return false
}
