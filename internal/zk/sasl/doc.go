// Package sasl has the client's side of the SASL mechanisms of ZooKeeper: DIGEST-MD5 (RFC 2831) for a password, and
// GSSAPI (RFC 4752) for Kerberos, with the tickets that it needs. It does not know how tokens get to the server.
package sasl

// Exchange is one authentication. It is used once.
type Exchange interface {
	// Step returns the next token for the server. It gets what the server has answered to the last one, nil at first.
	Step(challenge []byte) (token []byte, err error)
	// Done reports whether the exchange is complete, so that the last token is not to be sent. The server has then
	// proven that it knows the password, or the key of its principal.
	Done() bool
}
