package recorder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"zkelectd/internal/cluster"
)

// A file is the magic text and frames. A frame is its length, its CRC, its type and its payload. A header begins a run or goes on with
// one; the chunks that follow are one DEFLATE stream of records.
const magic = "zkelectd recording 1\n"

// The types of frames.
const (
	frameHeader = 'H'
	frameChunk  = 'C'
)

const (
	frameOverhead = 9
	maxFrame      = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says which daemon has recorded what follows.
type Header struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Boot is the kernel's boot id: times on CLOCK_BOOTTIME compare only between recordings with the same one.
	Boot string `json:"boot"`
	PID  int    `json:"pid"`
	// Run is a random id of the process. A run goes on in the next file.
	Run string `json:"run"`
	// Segment grows with each file.
	Segment int64 `json:"segment"`
	// At and Wall are the same moment on CLOCK_BOOTTIME and on the wall clock, which is for people.
	At   cluster.Duration `json:"at"`
	Wall time.Time        `json:"wall"`
	// Torn is how many bytes at the end of the file were cut off: a crash had interrupted their write.
	Torn int64 `json:"torn,omitempty"`
}

// WallAt returns the wall-clock time of a moment on CLOCK_BOOTTIME, for people.
func (h Header) WallAt(at time.Duration) time.Time { return h.Wall.Add(at - time.Duration(h.At)) }

// appendFrame appends a frame to b.
func appendFrame(b []byte, kind byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, frameSum(kind, payload))
	return append(append(b, kind), payload...)
}

func frameSum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
}

// errTorn is the error of a file that ends within a frame, as after a crash, or that is damaged from there on.
var errTorn = errors.New("torn or damaged")

// frameReader reads the frames of a file.
type frameReader struct {
	r    io.Reader
	good int64 // the end of the last valid frame
}

// newFrameReader reads the magic text.
func newFrameReader(r io.Reader) (*frameReader, error) {
	text := make([]byte, len(magic))
	if n, err := io.ReadFull(r, text); err != nil || string(text) != magic {
		return nil, fmt.Errorf("not a recording of this version of zkelectd: it begins with %q", text[:n])
	}
	return &frameReader{r, int64(len(magic))}, nil
}

// next returns the next frame. The error is io.EOF at the end of the file.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	var head [frameOverhead]byte
	if n, err := io.ReadFull(f.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, errTorn
	}
	size, kind := binary.LittleEndian.Uint32(head[:]), head[8]
	if size > maxFrame {
		return 0, nil, errTorn
	}
	// Not allocated before it is there: the length may be damaged.
	payload, err = io.ReadAll(io.LimitReader(f.r, int64(size)))
	if err != nil || len(payload) < int(size) || frameSum(kind, payload) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, errTorn
	}
	f.good += frameOverhead + int64(size)
	return kind, payload, nil
}

func decodeHeader(payload []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(payload, &h); err != nil {
		return Header{}, fmt.Errorf("a damaged header: %w", err)
	}
	return h, nil
}
