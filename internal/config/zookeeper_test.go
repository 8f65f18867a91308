package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestZooKeeperAccessIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"zookeeper: {acl: closed, auth: {file: /a}}": `z.yaml:1: zookeeper.acl: "closed" is not one of auto, open, readable, private`,
		"zookeeper: {acl: private}":                  `zookeeper.acl: "private" needs zookeeper.auth.file`,
		"zookeeper: {acl: readable}":                 `zookeeper.acl: "readable" needs zookeeper.auth.file`,
		"zookeeper: {tls: {key: /k}}":                "zookeeper.tls.key: needs zookeeper.tls.cert",
		"zookeeper: {tls: {cert: /c}}":               "zookeeper.tls.cert: needs zookeeper.tls.key",

		"zookeeper: {servers: ['srv+zk.example.com']}":                                         `"srv+zk.example.com" is not srv+_SERVICE._PROTOCOL.DOMAIN`,
		"zookeeper: {servers: ['srv+_zk._tcp.example.com'], tls: {ca: /c}}":                    "zookeeper.tls.server_name: is needed with SRV records",
		"zookeeper: {servers: ['srv+_zk._tcp.example.com'], sasl: {keytab: /k}, acl: private}": `zookeeper.sasl.server_principal: "zookeeper/_HOST" must be one name`,

		`zookeeper: {identities: ["CN=n1"]}`:                                         `zookeeper.identities: "CN=n1" is neither x509:SUBJECT nor sasl:NAME`,
		`zookeeper: {identities: ["x509:CN=n1"]}`:                                    `"x509:CN=n1" needs zookeeper.tls.cert`,
		`zookeeper: {identities: ["sasl:n1", "sasl:n1"], sasl: {password_file: /p}}`: `contains "sasl:n1" twice`,
		`zookeeper: {identities: ["sasl:n\e1"], sasl: {password_file: /p}}`:          "contains control characters",
		"zookeeper: {identities: [" + strings.Repeat("a, ", 64) + "b]}":              "has more than 64 entries",
		"zookeeper: {sasl: {password_file: /p, keytab: /k}}":                         "zookeeper.sasl.password_file: is for DIGEST-MD5",
		"zookeeper: {sasl: {keytab: /k, credential_cache: /c}}":                      "zookeeper.sasl.keytab: cannot be used together",
		"zookeeper: {sasl: {principal: p, credential_cache: /c}}":                    "zookeeper.sasl.principal: needs zookeeper.sasl.keytab",
		"zookeeper: {sasl: {identity: i, password_file: /p}}":                        "zookeeper.sasl.identity: needs",
		"zookeeper: {sasl: {credential_cache: c}}":                                   "zookeeper.sasl.credential_cache: \"c\" is not an absolute path",
	} {
		_, err := Load(Sources{File: file(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c := mustLoad(t, Sources{
		File: file(t, "zookeeper: {auth: {file: /etc/zk}, acl: private}"), Env: []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=/run/zk"},
	})
	if c.ZooKeeper.Auth.File != "/run/zk" || c.ZooKeeper.ACL != "private" {
		t.Errorf("zookeeper: got %+v", c.ZooKeeper)
	}
	mustLoad(t, Sources{File: file(t, "zookeeper: {sasl: {keytab: /k, principal: p, identity: i}, acl: private}")})
	mustLoad(t, Sources{File: file(t, "zookeeper: {sasl: {password_file: /p}, acl: private}")})
	mustLoad(t, Sources{File: file(t, `zookeeper: {tls: {cert: /c, key: /k}, acl: private, identities: ["x509:CN=n1,O=x"]}`)})
	mustLoad(t, Sources{File: file(t, "zookeeper: {servers: ['srv+_zk._tcp.example.com'], tls: {ca: /c, server_name: zk}}")})
	if c := mustLoad(t, Sources{File: file(t, "zookeeper: {servers: ['srv+_zk._tcp.example.com', '[::1]:2181', b]}")}); strings.Join(c.ZooKeeper.Servers, " ") !=
		"srv+_zk._tcp.example.com [::1]:2181 b:2181" {
		t.Errorf("%q", c.ZooKeeper.Servers)
	}
	for _, credentials := range []string{"auth: {file: /a}", "sasl: {keytab: /k}", "tls: {cert: /c, key: /k}"} {
		if c := mustLoad(t, Sources{File: file(t, "zookeeper: {"+credentials+"}")}); c.ZooKeeper.ACL != "auto" {
			t.Errorf("the default with %s is %s", credentials, c.ZooKeeper.ACL)
		}
	}
	if c := mustLoad(t, Sources{}); c.ZooKeeper.ACL != "open" || c.ZooKeeper.Auth.File != "" {
		t.Errorf("the default is %+v", c.ZooKeeper)
	}
}

func TestSecretFile(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir, file string
		systemd         bool
	}{
		{"", "/run/credentials/u", "", false},
		{"zk", "/run/credentials/u", "/run/credentials/u/zk", true},
		{"zk", "", "zk", false},
		{"/etc/zk", "/run/credentials/u", "/etc/zk", false},
		{"./zk", "/run/credentials/u", filepath.Join(here, "zk"), false},
	} {
		file, systemd := SecretFile(c.name, func(string) string { return c.dir })
		if file != c.file || systemd != c.systemd {
			t.Errorf("%+v: %q, %t", c, file, systemd)
		}
	}
}
