// The guest schedule sets the replicas of a workload by the time of day, the day and the month. The
// time and its zone are those of the request.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
)

// schedule is the guest. Its fields are its configuration.
type schedule struct {
	// Entries map times to numbers of replicas. The entry with the latest past time counts, and of
	// several with the same time the last in the list.
	Entries []struct {
		// From is an expression as in crontab(5), in the time zone of the policy.
		From     string `json:"from"`
		Replicas int32  `json:"replicas"`
	} `json:"entries"`

	times []cron // The times of the entries.
}

// Configure checks the configuration.
func (s *schedule) Configure() error {
	var errs []error
	if len(s.Entries) == 0 {
		errs = append(errs, errors.New("there are no entries"))
	}
	s.times = s.times[:0]
	for i, e := range s.Entries {
		c, err := parseCron(e.From)
		if err == nil {
			// A leap year and seven others: an expression without a match in them never matches.
			if _, ok := c.last(time.Date(2024, 12, 31, 23, 59, 0, 0, time.UTC)); !ok {
				err = fmt.Errorf("%q never comes", e.From)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entries[%d].from: %w", i, err))
		}
		if e.Replicas < 0 {
			errs = append(errs, fmt.Errorf("entries[%d].replicas is %d, less than 0", i, e.Replicas))
		}
		s.times = append(s.times, c)
	}
	return errors.Join(errs...)
}

// Replicas returns the number of replicas of the entry with the latest past time.
func (s *schedule) Replicas(req scalerguest.ReplicasRequest, resp *scalerguest.ReplicasResponse) error {
	t := req.Time()
	// The wall clock of the time zone, represented as UTC.
	now := time.Unix(t.UnixSeconds()+int64(t.UtcOffsetSeconds()), 0).UTC()
	best, since := -1, time.Time{}
	for i := range s.times {
		if last, ok := s.times[i].last(now); ok && !last.Before(since) {
			best, since = i, last
		}
	}
	if best < 0 {
		return errors.New("no entry has begun")
	}
	resp.Replicas = &s.Entries[best].Replicas
	resp.Reason = fmt.Sprintf("%q since %s", s.Entries[best].From, since.Format("Mon 2006-01-02 15:04"))
	return nil
}

func init() { scalerguest.RegisterScaler(&schedule{}) }

func main() {}
