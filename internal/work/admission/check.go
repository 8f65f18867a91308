package admission

import (
	"context"
	"fmt"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/systemd"
)

// checkTimeout bounds what systemd only has to look up.
const checkTimeout = 2 * time.Second

// CheckUnit returns the leader-only unit as systemd has loaded it, or an error if its drop-in would let it run on a
// host that does not lead.
func CheckUnit(ctx context.Context, name string) (systemd.Unit, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	u, err := systemd.Inspect(ctx, name, guard.PermitFile, EnvironmentFile(name))
	if err != nil {
		return u, fmt.Errorf("child.unit: %w", err)
	}
	return u, nil
}
