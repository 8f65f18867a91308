package hostcheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/config"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each program, directory and unit that could not be used is named, with its setting and the reason.
func TestGroup(t *testing.T) {
	dir := t.TempDir()
	script := write(t, filepath.Join(dir, "script"), "#!/no/such/shell -e\n", 0o700)
	plain := write(t, filepath.Join(dir, "plain"), "text", 0o600)
	write(t, filepath.Join(dir, "slot-0"), "#!/bin/sh\n", 0o700)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/no/such/bus")
	for text, want := range map[string]string{
		"child: {command: [sleep, '1']}": "",
		"child: {command: [/bin/sh], dir: /, live: {exec: [true]}, ready: {exec: [sh]}}": "",
		"child: {command: [no-such-app]}":                                                "child.command: no-such-app is in no directory of $PATH (",
		"child: {command: [/no/such/app]}":                                               "child.command: /no/such/app does not exist",
		"child: {command: [" + script + "]}":                                             "child.command: " + script + " is a script for /no/such/shell, which does not exist",
		"child: {command: [" + plain + "]}":                                              "child.command: " + plain + " cannot be executed by the user with id ",
		"child: {command: [" + dir + "]}":                                                "child.command: " + dir + " is a directory",
		"child: {command: [./slot-0], dir: " + dir + "}":                                 "",
		"child: {command: [sleep], dir: /no/such/dir}":                                   "child.dir: /no/such/dir does not exist",
		"child: {command: [sleep], dir: " + plain + "}":                                  "child.dir: " + plain + " is not a directory",
		"hooks: {pre_start: [/no/hook]}":                                                 "hooks.pre_start: /no/hook does not exist",
		"hooks: {post_stop: [/no/hook]}":                                                 "hooks.post_stop: /no/hook does not exist",
		"hooks: {on_change: [/no/hook]}":                                                 "hooks.on_change: /no/hook does not exist",
		"hooks: {on_leader_change: [/no/hook]}":                                          "hooks.on_leader_change: /no/hook does not exist",
		"child: {live: {exec: [/no/probe]}}":                                             "child.live.exec: /no/probe does not exist",
		"child: {ready: {exec: [/no/probe]}}":                                            "child.ready.exec: /no/probe does not exist",
		"health: {exec: [/no/probe]}":                                                    "health.exec: /no/probe does not exist",
		"score: {exec: [/no/probe]}":                                                     "score.exec: /no/probe does not exist",
		"policy: {type: exec, exec: [/no/rank]}":                                         "policy.exec: /no/rank does not exist",
		"fencing: {levels: {command: [/no/off]}}":                                        "fencing.levels[0].command: /no/off does not exist",
		"child: {unit: app.service}":                                                     "child.unit: cannot reach systemd over D-Bus",
		"{slots: {count: 2}, child: {command: ['" + dir + "/slot-${ZKELECTD_SLOT}']}}":   "child.command: " + dir + "/slot-1 does not exist",
	} {
		c, err := config.Load(config.Sources{File: write(t, filepath.Join(dir, "z.yaml"), text, 0o600)})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := errors.Join(Group(t.Context(), c)...)
		if want == "" && got != nil || want != "" && (got == nil || !strings.HasPrefix(got.Error(), want) || strings.Contains(got.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", text, got, want)
		}
	}
}
