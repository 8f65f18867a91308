package worker

import (
	"strings"
	"testing"

	"zkelectd/internal/work/systemd"
)

// A drop-in that ties the unit to anything but this daemon is refused before anything starts.
func TestUnitOfAnotherDaemon(t *testing.T) {
	own := dropIn{permit: "/sys/fs/cgroup/z/zkelectd-permit-app.service", socket: "/run/zkelectd/app.service.sock", service: "zkelectd.service"}
	u := systemd.Unit{Name: "app.service", Permit: own.permit, Socket: own.socket, BindsTo: []string{"zkelectd.service"}}
	for _, test := range []struct {
		change func(*dropIn)
		want   string
	}{
		{func(*dropIn) {}, ""},
		{func(own *dropIn) { own.service = "" }, ""}, // not a service: it has no permit then, but for tests
		{func(own *dropIn) { own.permit = "" }, "Delegate=yes"},
		{func(own *dropIn) { own.socket = "" }, "RuntimeDirectory="},
		{func(own *dropIn) { own.permit = "/p" }, "names the permit " + u.Permit + ", but this daemon uses /p"},
		{func(own *dropIn) { own.socket = "/s" }, "names the socket " + u.Socket + ", but this daemon uses /s"},
		{func(own *dropIn) { own.service = "zkelectd@g2.service" }, "is bound to [zkelectd.service], but this daemon is zkelectd@g2.service"},
	} {
		here := own
		test.change(&here)
		err := here.check(u)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", here, err)
		}
	}
}
