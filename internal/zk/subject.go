package zk

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"regexp"
)

// plainSubject matches the subjects that Go and Java write alike.
var plainSubject = regexp.MustCompile(`^((CN|C|L|ST|STREET|O|OU)=[^=,+#\\"<>;]+(,|$))+$`)

// subjectOf returns the subject of a certificate as ZooKeeper's X509AuthenticationProvider writes it, in the form of
// RFC 2253: the ACLs of the scheme x509 compare such texts. It is empty if Java may write it in another way.
func subjectOf(cert *x509.Certificate) string {
	var names pkix.RDNSequence
	if _, err := asn1.Unmarshal(cert.RawSubject, &names); err != nil || !plainSubject.MatchString(names.String()) {
		return ""
	}
	return names.String()
}
