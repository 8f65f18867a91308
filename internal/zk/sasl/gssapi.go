package sasl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// exchangeGSSAPI is an exchange of GSSAPI with Kerberos, as Java's clients perform it: without mutual authentication by
// Kerberos, since the server proves that it knows the session key when it offers its security layers.
type exchangeGSSAPI struct {
	ticket *ticket
	seq    int64 // of our messages
	step   int
}

func (x *exchangeGSSAPI) Done() bool { return x.step > 2 }

func (x *exchangeGSSAPI) Step(challenge []byte) (token []byte, err error) {
	switch x.step {
	case 0:
		token, err = x.request()
	case 1:
		if len(challenge) == 0 {
			return nil, ErrNoSASL
		}
		token, err = x.chooseLayer(challenge)
	}
	x.step++
	return token, err
}

// request returns the first token: the ticket, and a proof that this client knows its session key.
func (x *exchangeGSSAPI) request() ([]byte, error) {
	t := x.ticket
	auth, err := types.NewAuthenticator(t.realm, t.client)
	if err != nil {
		return nil, err
	}
	x.seq = auth.SeqNumber
	// RFC 4121, 4.1.1: the length of the channel's binding, which is all zero, and the flags of the context.
	sum := binary.LittleEndian.AppendUint32(nil, 16)
	sum = append(sum, make([]byte, 16)...)
	sum = binary.LittleEndian.AppendUint32(sum, gssapi.ContextFlagInteg)
	auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: sum}
	request, err := messages.NewAPReq(t.ticket, t.key, auth)
	if err != nil {
		return nil, err
	}
	data, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	head, err := asn1.Marshal(gssapi.OIDKRB5.OID())
	if err != nil {
		return nil, err
	}
	return asn1tools.AddASNAppTag(slices.Concat(head, []byte{1, 0}, data), 0), nil // 1, 0: a request
}

// What a server offers, and a client chooses (RFC 4752, 3.1). No layer: TLS protects the connection, or nothing does.
const noLayer = 1

// Flags of a wrapped message (RFC 4121, 4.2.2).
const (
	fromAcceptor   = 1
	sealed         = 2
	acceptorSubkey = 4
)

// chooseLayer checks that the server knows the session key, and returns the choice of the security layer.
func (x *exchangeGSSAPI) chooseLayer(challenge []byte) ([]byte, error) {
	var offer gssapi.WrapToken
	if err := offer.Unmarshal(slices.Clone(challenge), true); err != nil {
		return nil, fmt.Errorf("the server's answer to the ticket is not one of Kerberos: %w", err)
	}
	if offer.Flags != fromAcceptor {
		return nil, fmt.Errorf("the server's answer to the ticket has the flags %#x, without having been asked for "+
			"them", offer.Flags&(sealed|acceptorSubkey))
	}
	// The checksum may have been rotated to the front.
	if rest := challenge[gssapi.HdrLen:]; offer.RRC != 0 && len(rest) > 0 {
		by := int(offer.RRC) % len(rest)
		rest = slices.Concat(rest[by:], rest[:by])
		at := len(rest) - int(offer.EC)
		offer.Payload, offer.CheckSum = rest[:at], rest[at:]
	}
	if ok, err := offer.Verify(x.ticket.key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil || !ok {
		return nil, fmt.Errorf("the server has not proven that it has the key of %s: it may be somebody else",
			x.ticket.service)
	}
	switch {
	case len(offer.Payload) != 4:
		return nil, errors.New("the server's offer of security layers is malformed")
	case offer.Payload[0]&noLayer == 0:
		return nil, errors.New("the server demands a security layer of SASL, which ZooKeeper's protocol does not have")
	}
	kind, err := crypto.GetEtype(x.ticket.key.KeyType)
	if err != nil {
		return nil, err
	}
	choice := gssapi.WrapToken{EC: uint16(kind.GetHMACBitLength() / 8), SndSeqNum: uint64(x.seq),
		Payload: []byte{noLayer, 0, 0, 0}}
	if err := choice.SetCheckSum(x.ticket.key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	return choice.Marshal()
}
