package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/host"
	"zkelectd/internal/web"
)

// A daemon is asked to reload at a socket of its own. Where that is depends on the unit's runtime directory and on the
// path of the configuration file, never on what the file says, which may have changed in any setting; and on no
// record, as anybody may have written that.

// ReloadPath is where a daemon takes requests to reload.
const ReloadPath = "/reload"

// runDirectories match the runtime directories of zkelectd's units.
const runDirectories = "/run/zkelectd*"

// reloadSocketName returns the name of the socket of a daemon with a configuration file; file is empty for none.
func reloadSocketName(file string) (string, error) {
	if file != "" {
		var err error
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(file))
	return fmt.Sprintf("reload-%x.sock", sum[:8]), nil
}

// userDirectory returns the directory for the sockets of daemons that this user starts without a runtime directory.
func userDirectory() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("zkelectd-%d", os.Geteuid()))
}

// checkUserDirectory returns an error if another user may have made the directory, or may write there.
func checkUserDirectory(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a directory of this user alone: remove it", dir)
	}
	return nil
}

// NewReloadSocket returns where this daemon takes requests to reload.
func NewReloadSocket(file string) (string, error) {
	name, err := reloadSocketName(file)
	if dir := config.RuntimeDirectory(os.Getenv); err != nil || dir != "" {
		return filepath.Join(dir, name), err
	}
	if file == "" {
		return "", errors.New("without a configuration file and a runtime directory ($RUNTIME_DIRECTORY) nothing " +
			"names the daemon")
	}
	dir := userDirectory()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return filepath.Join(dir, name), checkUserDirectory(dir)
}

// ReloadSockets returns where the daemon with a configuration file may take requests to reload; some may have no
// daemon any more.
func ReloadSockets(file string) ([]string, error) {
	name, err := reloadSocketName(file)
	if err != nil {
		return nil, err
	}
	if dir := config.RuntimeDirectory(os.Getenv); dir != "" {
		all, err := filepath.Glob(filepath.Join(dir, "reload-*.sock")) // the daemon of this unit, whatever its file
		return append([]string{filepath.Join(dir, name)}, all...), err
	}
	all, err := filepath.Glob(filepath.Join(runDirectories, name))
	if dir := userDirectory(); err == nil && checkUserDirectory(dir) == nil {
		all = append(all, filepath.Join(dir, name))
	}
	return all, err
}

// APIAddress returns where the daemon with a configuration file serves its HTTP API; empty if that is not known. By
// default that is a socket beside the one for reloads, in the runtime directory of its unit.
func APIAddress(h config.HTTP, file string) (string, error) {
	address := h.Address(os.Getenv)
	if address != "" || h.Listen == config.ListenNone {
		return address, nil
	}
	if file == "" {
		return "", nil
	}
	sockets, err := ReloadSockets(file)
	for _, s := range sockets {
		api := filepath.Join(filepath.Dir(s), config.APISocket)
		if _, statErr := os.Stat(api); statErr == nil {
			return "unix:" + api, nil
		}
	}
	return "", err
}

// serveReloads takes requests to reload until ctx ends. Without them the daemon works as well.
func (s *settings) serveReloads(ctx context.Context, h *host.Host, log *slog.Logger) {
	if s.from.Once {
		return // nothing can be read again
	}
	socket, err := NewReloadSocket(s.from.File)
	if err == nil {
		err = web.Endpoint{Addr: "unix:" + socket, Private: true}.Serve(ctx, reloadHandler(h))
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("'zkelectd reload' cannot ask this daemon: send SIGHUP to reload its configuration", "err", err)
	}
}

// maxReloadRequest bounds a request, in bytes.
const maxReloadRequest = 1 << 10

// reloadHandler answers requests to reload.
func reloadHandler(h *host.Host) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+ReloadPath, func(w http.ResponseWriter, r *http.Request) {
		var request host.ReloadRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReloadRequest)).Decode(&request); err != nil {
			http.Error(w, "not a request to reload: "+err.Error(), http.StatusBadRequest)
			return
		}
		control := http.NewResponseController(w) // the client says how long it waits
		control.SetReadDeadline(time.Time{})
		control.SetWriteDeadline(time.Time{})
		result, err := h.ReloadWith(r.Context(), request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		json.NewEncoder(w).Encode(result)
	})
	return mux
}
