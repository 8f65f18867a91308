package zkserver

import "encoding/binary"

// SessionPassword returns the password of a session. ZooKeeper computes it from the session's id, so every client that
// knows or guesses an id can attach to that session and close it. The function does what ZooKeeperServer.generatePasswd
// does with java.util.Random.
func SessionPassword(session int64) []byte {
	const multiplier, mask, size = 0x5DEECE66D, 1<<48 - 1, 16
	seed := (uint64(session^0xB3415C00) ^ multiplier) & mask
	var password []byte
	for len(password) < size {
		seed = (seed*multiplier + 0xB) & mask
		password = binary.LittleEndian.AppendUint32(password, uint32(seed>>16))
	}
	return password
}
