package zkserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// WithPassword returns options for a server that demands SASL, with the mechanism DIGEST-MD5 and one user. Its JAAS
// configuration is in dir.
func WithPassword(opt Options, dir, user, password string) (Options, error) {
	// else 3.9.6 and later don't use DIGEST-MD5 (ZOOKEEPER-5043)
	opt.Java = append(opt.Java, "-Dzookeeper.fips-mode=false")
	return withJAAS(opt, dir, fmt.Sprintf(`org.apache.zookeeper.server.auth.DigestLoginModule required user_%s="%s";`,
		user, password))
}

// WithKerberos returns options for a server that demands SASL, with a principal whose key is in a keytab. conf is its
// krb5.conf.
func WithKerberos(opt Options, dir, principal, keytab, conf string) (Options, error) {
	opt.Java = append(opt.Java, "-Djava.security.krb5.conf="+conf)
	return withJAAS(opt, dir, fmt.Sprintf(
		`com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false keyTab="%s" principal="%s";`,
		keytab, principal))
}

// withJAAS returns options for a server that demands SASL as a login module says.
func withJAAS(opt Options, dir, module string) (Options, error) {
	file := filepath.Join(dir, "jaas.conf")
	opt.Java = append(opt.Java, "-Djava.security.auth.login.config="+file)
	opt.ExtraConfig = append(opt.ExtraConfig, "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
		"sessionRequireClientSASLAuth=true")
	return opt, os.WriteFile(file, fmt.Appendf(nil, "Server {\n\t%s\n};\n", module), 0o600)
}
