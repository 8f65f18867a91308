package status

import "zkelectd/internal/cluster"

// WatchdogDevice is the device that resets a host whose work outlives its lease, as its daemon sees it.
type WatchdogDevice struct {
	Device string `json:"device"`
	// State is one of the constants below; Reason says why the device is unusable.
	State    string `json:"state"`
	Required bool   `json:"required,omitempty"`
	Identity string `json:"identity,omitempty"`
	// Timeout is that of the device. ResetAfterLease is how long after the end of a lease the host is reset at the latest.
	Timeout         cluster.Duration `json:"timeout,omitempty"`
	ResetAfterLease cluster.Duration `json:"reset_after_lease,omitempty"`
	Reason          string           `json:"reason,omitempty"`
	// Warnings are the weaknesses of a device that can be used.
	Warnings []string `json:"warnings,omitempty"`
}

// The values of [WatchdogDevice.State].
const (
	// DeviceReady: it was checked, and is armed when work starts.
	DeviceReady = "ready"
	// DeviceArmed: it resets the host unless the guard goes on to pet it.
	DeviceArmed = "armed"
	// DeviceUnusable: it does not protect, see Reason.
	DeviceUnusable = "unusable"
)
