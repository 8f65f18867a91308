package sasl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"zkelectd/internal/sys/secretfile"
)

// Kerberos says who logs in to Kerberos, and with what. It contains file names and no secrets. The files are read at
// each login.
type Kerberos struct {
	// Keytab is a file with the keys of the principal; CredentialCache one with a ticket that another program renews.
	// One of them is set.
	Keytab          string `json:"keytab,omitempty"`
	CredentialCache string `json:"credential_cache,omitempty"`
	// Systemd reports whether Keytab is a credential of the systemd unit.
	Systemd bool `json:"systemd,omitempty"`
	// Principal is empty for the first one in Keytab.
	Principal string `json:"principal,omitempty"`
	// ServerPrincipal is that of a server, in which _HOST stands for its name; empty for zookeeper/_HOST.
	ServerPrincipal string `json:"server_principal,omitempty"`
	// Krb5Conf is the configuration of Kerberos; empty for /etc/krb5.conf.
	Krb5Conf string `json:"krb5_conf,omitempty"`
}

// The settings, for errors.
const (
	keytabKey    = "zookeeper.sasl.keytab"
	cacheKey     = "zookeeper.sasl.credential_cache"
	principalKey = "zookeeper.sasl.principal"
	serverKey    = "zookeeper.sasl.server_principal"
	confKey      = "zookeeper.sasl.krb5_conf"
)

// Check reads the files and returns an error if any of them is missing or invalid.
func (k Kerberos) Check() (err error) {
	defer recoverMalformed(&err)
	_, _, err = k.client()
	return err
}

// name returns the principal with its realm.
func (c *krbClient) name() string {
	return c.Credentials.CName().PrincipalNameString() + "@" + c.Credentials.Realm()
}

// krbClient asks KDCs.
type krbClient struct {
	*client.Client
	k Kerberos
}

// tgt is a ticket for tickets.
type tgt struct {
	ticket messages.Ticket
	key    types.EncryptionKey
	end    time.Time
}

// recoverMalformed turns a panic of the library, which trusts the files that it parses, into an error.
func recoverMalformed(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("Kerberos: a file or an answer is malformed (%v)", r)
	}
}

// client reads the files. The ticket is that of a credential cache, nil with a keytab.
func (k Kerberos) client() (*krbClient, *tgt, error) {
	conf, err := k.config()
	if err != nil {
		return nil, nil, err
	}
	if k.Keytab == "" {
		return k.cached(conf)
	}
	data, err := secretfile.Read(keytabKey, k.Keytab, secretfile.ForbiddenMode(k.Systemd))
	if err != nil {
		return nil, nil, err
	}
	keys := keytab.New()
	if err := keys.Unmarshal(data); err != nil || len(keys.Entries) == 0 {
		return nil, nil, fmt.Errorf("%s: %s contains no keys of Kerberos", keytabKey, k.Keytab)
	}
	first := keys.Entries[0].Principal
	name, realm, _ := strings.Cut(cmp.Or(k.Principal, strings.Join(first.Components, "/")+"@"+first.Realm), "@")
	realm = cmp.Or(realm, conf.LibDefaults.DefaultRealm)
	if realm == "" {
		return nil, nil, fmt.Errorf("%s: %q has no realm, and %s no default_realm", principalKey, name, k.conf())
	}
	var has []string
	for _, e := range keys.Entries {
		has = append(has, strings.Join(e.Principal.Components, "/")+"@"+e.Principal.Realm)
	}
	c := &krbClient{client.NewWithKeytab(name, realm, keys, conf, client.DisablePAFXFAST(true)), k}
	if slices.Contains(has, c.name()) {
		return c, nil, nil
	}
	return nil, nil, fmt.Errorf("%s: %s has no key of %s@%s, but of %s", keytabKey, k.Keytab, name, realm,
		strings.Join(slices.Compact(has), ", "))
}

// cached returns the ticket in the credential cache.
func (k Kerberos) cached(conf *config.Config) (*krbClient, *tgt, error) {
	data, err := secretfile.Read(cacheKey, k.CredentialCache, secretfile.ForbiddenMode(false))
	if err != nil {
		return nil, nil, err
	}
	var cache credentials.CCache
	if err := cache.Unmarshal(data); err != nil {
		return nil, nil, fmt.Errorf("%s: %s is not a credential cache in a file: %w", cacheKey, k.CredentialCache, err)
	}
	c := &krbClient{&client.Client{Credentials: cache.GetClientCredentials(), Config: conf}, k}
	name := types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", c.Credentials.Realm()}}
	found, ok := cache.GetEntry(name)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %s has no ticket for tickets: run kinit", cacheKey, k.CredentialCache)
	}
	if c.Client, err = client.NewFromCCache(&cache, conf, client.DisablePAFXFAST(true)); err != nil {
		return nil, nil, fmt.Errorf("%s: %s: %w", cacheKey, k.CredentialCache, err)
	}
	t := &tgt{key: found.Key, end: found.EndTime}
	return c, t, t.ticket.Unmarshal(found.Ticket)
}

func (k Kerberos) conf() string { return cmp.Or(k.Krb5Conf, "/etc/krb5.conf") }

// confDefaults are what the library has other defaults for than MIT's.
const confDefaults = `[libdefaults]
 dns_lookup_kdc = true
 default_tkt_enctypes = aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96 aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128
 default_tgs_enctypes = aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96 aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128
`

// includes are the lines with which a configuration includes others, which the library does not do.
var includes = regexp.MustCompile(`(?m)^\s*(include|includedir|module)\s.*$`)

// config reads the configuration of Kerberos.
func (k Kerberos) config() (*config.Config, error) {
	data, err := secretfile.Read(confKey, k.conf(), 0)
	if err != nil {
		return nil, err
	}
	conf, err := config.NewFromString(confDefaults + includes.ReplaceAllString(string(data), ""))
	if unsupported := new(config.UnsupportedDirective); err != nil && !errors.As(err, unsupported) {
		return nil, fmt.Errorf("%s: %s: %w", confKey, k.conf(), err)
	}
	return conf, nil
}

// service returns the principal of a server, host:port. The name of its host is taken as it is written: a forged answer
// of DNS must not choose which server is believed.
func (k Kerberos) service(server string) string {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		host = server
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return strings.ReplaceAll(cmp.Or(k.ServerPrincipal, "zookeeper/_HOST"), "_HOST", host)
}

// login gets a ticket for tickets.
func (k Kerberos) login() (*krbClient, *tgt, error) {
	c, t, err := k.client()
	switch {
	case err != nil:
		return nil, nil, err
	case t != nil && time.Now().After(t.end):
		return nil, nil, fmt.Errorf("%s: the ticket of %s in %s has expired at %s: run kinit, or use a keytab",
			cacheKey, c.name(), k.CredentialCache, t.end.Format(time.RFC3339))
	case t != nil:
		return c, t, nil
	}
	realm := c.Credentials.Realm()
	request, err := messages.NewASReqForTGT(realm, c.Config, c.Credentials.CName())
	if err != nil {
		return nil, nil, err
	}
	reply, err := c.ASExchange(realm, request, 0)
	if err != nil {
		return nil, nil, c.explain(err, "", realm)
	}
	return c, &tgt{ticket: reply.Ticket, key: reply.DecryptedEncPart.Key, end: reply.DecryptedEncPart.EndTime}, nil
}

// ticketFor gets a ticket for a service.
func (c *krbClient) ticketFor(t *tgt, service string) (*ticket, error) {
	name, realm, explicit := strings.Cut(service, "@")
	own := c.Credentials.Realm()
	if !explicit {
		_, host, _ := strings.Cut(name, "/")
		realm = cmp.Or(c.Config.ResolveRealm(host), own)
	}
	if realm != own { // by a ticket for its KDC
		krbtgt := types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", realm}}
		_, reply, err := c.TGSREQGenerateAndExchange(krbtgt, own, t.ticket, t.key, false)
		if err != nil {
			return nil, c.explain(err, "krbtgt/"+realm+"@"+own, own)
		}
		t = &tgt{ticket: reply.Ticket, key: reply.DecryptedEncPart.Key}
	}
	principal := types.PrincipalName{NameType: nametype.KRB_NT_SRV_HST, NameString: strings.Split(name, "/")}
	_, reply, err := c.TGSREQGenerateAndExchange(principal, realm, t.ticket, t.key, false)
	if err != nil {
		return nil, c.explain(err, name+"@"+realm, realm)
	}
	return &ticket{
		ticket: reply.Ticket, key: reply.DecryptedEncPart.Key, begin: time.Now(), end: reply.DecryptedEncPart.EndTime,
		client: c.Credentials.CName(), realm: own, service: name + "@" + realm,
	}, nil
}

// errorCode finds the code of a KDC's error, which the library's errors have in their text only.
var errorCode = regexp.MustCompile(`KRB Error: \((\d+)\)`)

// explain adds to an error of the library, or of a KDC of a realm, what to do. service is the one that a ticket was
// wanted for, empty for a login.
func (c *krbClient) explain(err error, service, realm string) error {
	code := ""
	if found := errorCode.FindStringSubmatch(err.Error()); found != nil {
		code = found[1]
	}
	text := err.Error()
	say := func(format string, args ...any) error {
		return fmt.Errorf("Kerberos: %s (%w)", fmt.Sprintf(format, args...), err)
	}
	switch {
	case code == "37" || strings.Contains(text, "clock skew"):
		return say("this host's clock differs too much from that of the KDC of %s: correct it, with NTP", realm)
	case code == "6":
		return say("the KDC of %s does not know %s: is it the right realm? Correct %s, or create the principal", realm,
			c.name(), principalKey)
	case code == "7":
		return say("the KDC of %s does not know the server's principal %s: write the server's name in "+
			"zookeeper.servers as in its principal, or set %s",
			realm, service, serverKey)
	case code == "68":
		return say("%s is in another realm: correct %s", c.name(), principalKey)
	case code == "24", strings.Contains(text, "keytab") && code == "", strings.Contains(text, "decrypt"):
		return say("the keys of %s in %s are not its current ones: export them again", c.name(), c.k.Keytab)
	case code == "18", code == "23", code == "1":
		return say("the KDC of %s does not let %s log in", realm, c.name())
	case code == "32":
		return say("the ticket of %s has expired", c.name())
	case strings.Contains(text, "no KDCs defined"), strings.Contains(text, "_kerberos."), strings.Contains(text, "SRV"):
		return say("there is no KDC of realm %s, neither in %s nor in DNS: is it the right realm? %s names "+
			"another file, not "+
			"KRB5_CONFIG, and files that it includes are not read", realm, c.k.conf(), confKey)
	case code == "":
		return say("no KDC of %s answers: is it up, and can this host reach it?", realm)
	}
	return say("the KDC of %s refuses", realm)
}
