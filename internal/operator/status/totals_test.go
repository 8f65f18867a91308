package status

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	if count, sum, buckets := h.Cumulative(); count != 0 || sum != 0 || len(buckets) != len(Buckets) {
		t.Errorf("empty: %d %v %v", count, sum, buckets)
	}
	h.Observe(0)
	h.Observe(time.Millisecond) // a bound is in its bucket
	h.Observe(1100 * time.Microsecond)
	h.Observe(time.Hour)
	before := h.Clone()
	h.Observe(time.Second)
	count, sum, buckets := before.Cumulative()
	if count != 4 || sum < 3600.002 || sum > 3600.0022 || buckets[0.001] != 2 || buckets[0.0025] != 3 || buckets[60] != 3 {
		t.Errorf("%d %v %v", count, sum, buckets)
	}
	if _, _, buckets := h.Cumulative(); buckets[0.5] != 3 || buckets[1] != 4 {
		t.Errorf("%v", buckets)
	}
}
