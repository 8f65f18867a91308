package worker

import (
	"strings"
	"testing"

	"zkelectd/internal/systemd"
)

// A drop-in that ties the unit to something else than this daemon is refused before anything starts.
func TestUnitOfAnotherDaemon(t *testing.T) {
	own := ties{permit: "/sys/fs/cgroup/z/zkelectd-permit", socket: "/run/zkelectd/unit.sock", service: "zkelectd.service"}
	u := systemd.Unit{Name: "app.service", Permit: own.permit, Socket: own.socket, BindsTo: []string{"zkelectd.service"}}
	for _, test := range []struct {
		change func(*ties)
		want   string
	}{
		{func(*ties) {}, ""},
		{func(own *ties) { own.service = "" }, ""}, // not a service: it has no permit then, but for tests
		{func(own *ties) { own.permit = "" }, "Delegate=yes"},
		{func(own *ties) { own.socket = "" }, "RuntimeDirectory="},
		{func(own *ties) { own.permit = "/p" }, "has the permit " + u.Permit + ", and that of this zkelectd is /p"},
		{func(own *ties) { own.socket = "/s" }, "has the socket " + u.Socket + ", and that of this zkelectd is /s"},
		{func(own *ties) { own.service = "zkelectd@g2.service" }, "is bound to [zkelectd.service], and this zkelectd is zkelectd@g2.service"},
	} {
		here := own
		test.change(&here)
		err := here.check(u)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", here, err)
		}
	}
}
