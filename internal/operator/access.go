package operator

import (
	"encoding/json"

	"zkelectd/internal/config"
	"zkelectd/internal/zk"
)

// Access returns the ZooKeeper credentials and TLS files for c. getenv returns the daemon's environment, which says where
// systemd has put the unit's credentials.
func Access(c config.Config, getenv func(string) string) zk.Access {
	z := c.ZooKeeper
	a := zk.Access{ACL: zk.ACL(z.ACL)}
	a.Auth.Path, a.Auth.Systemd = config.SecretFile(z.Auth.File, getenv)
	a.TLS = zk.TLS{Enabled: z.TLS.Enabled(), ServerName: z.TLS.ServerName}
	a.TLS.CA, _ = config.SecretFile(z.TLS.CA, getenv)
	a.TLS.Cert, _ = config.SecretFile(z.TLS.Cert, getenv)
	a.TLS.Key, _ = config.SecretFile(z.TLS.Key, getenv)
	return a
}

// EncodeAccess encodes what the guard needs to close a session after the daemon's death: file names, no secrets.
func EncodeAccess(a zk.Access) json.RawMessage {
	data, err := json.Marshal(a)
	if err != nil {
		return nil // unreachable: the fields are plain strings
	}
	return data
}
