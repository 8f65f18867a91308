package zk

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strings"
)

// attributes are the types of attributes that have a keyword in a name.
var attributes = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
	"2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// attribute is one of a name in a certificate.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// attributeSET is a part of a name. Its name tells encoding/asn1 that it is a SET.
type attributeSET []attribute

// subjectOf returns the subject of a certificate as ZooKeeper's X509AuthenticationProvider does: in the form of RFC
// 2253, as Java's X500Principal.getName writes it. The ACLs of the scheme x509 compare such texts.
func subjectOf(cert *x509.Certificate) string {
	var sets []attributeSET
	if cert == nil {
		return ""
	} else if _, err := asn1.Unmarshal(cert.RawSubject, &sets); err != nil {
		return ""
	}
	var parts []string
	for _, set := range slices.Backward(sets) {
		var values []string
		for _, a := range set {
			values = append(values, a.String())
		}
		parts = append(parts, strings.Join(values, "+"))
	}
	return strings.Join(parts, ",")
}

// String returns the attribute as KEYWORD=value, and one whose keyword or string type is not known as the hexadecimal
// digits of its encoding.
func (a attribute) String() string {
	name := attributes[a.Type.String()]
	var text string
	if _, err := asn1.Unmarshal(a.Value.FullBytes, &text); name == "" || err != nil {
		if name == "" {
			name = a.Type.String()
		}
		return name + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	var b strings.Builder
	begin, end := len(text)-len(strings.TrimLeft(text, " ")), len(strings.TrimRight(text, " "))
	for i, c := range text {
		switch {
		case strings.ContainsRune(`,=+<>#;"\`, c), i < begin || i >= end:
			b.WriteByte('\\')
		case c == 0:
			b.WriteString(`\0`)
			c = '0'
		}
		b.WriteRune(c)
	}
	return name + "=" + b.String()
}
