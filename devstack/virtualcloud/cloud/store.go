package cloud

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Files in the data folder.
const (
	logFile       = "instances.log"
	behaviourFile = "behaviour.json"
	lockFile      = "lock"
)

// compactAbove is the size of the log, in bytes, above which it is compacted while the cloud runs.
const compactAbove = 32 << 20

// forgetAfter is how long a compaction keeps an instance that is gone: longer than any useful staleness.
const forgetAfter = 10 * time.Minute

// store keeps the world on disk as a log of JSON lines. Each change is one write. A killed process leaves complete
// lines, and at most one incomplete line at the end. That line counts as not written: its caller got no answer. There
// is no fsync: the log must survive the end of the process, and need not survive the end of the machine.
type store struct {
	dir  string
	file *os.File
	size int64 // size of the complete lines in bytes
	next int64 // size at which the log is compacted again
	lock *os.File
}

// openStore opens the data folder, rebuilds the world from its log and compacts the log. It refuses a folder that
// another process has open.
func openStore(dir string, now time.Time) (*store, *world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, nil, fmt.Errorf("lock data folder %s, is another virtualcloud running there: %w", dir, err)
	}
	s := &store{dir: dir, lock: lock}
	w, err := s.load()
	if err == nil {
		err = s.compact(w, now)
	}
	if err != nil {
		_ = lock.Close()
		return nil, nil, err
	}
	return s, w, nil
}

// load rebuilds the world from the log, without a torn last line.
func (s *store) load() (*world, error) {
	w := newWorld()
	file, err := os.Open(filepath.Join(s.dir, logFile))
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return w, nil // the last line has no line break: it was not written to its end
		}
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
		var e logEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of log: %w", number, err)
		}
		if (e.Kind == summary) != (e.Counters != nil) || (e.Kind == summary) == (e.Record != nil) {
			return nil, fmt.Errorf("read line %d of log: it is no entry", number)
		}
		w.apply(e)
	}
}

// compact writes the world as a new log, replaces the old one in one step, and opens the new one for appending.
// Instances that have been gone for forgetAfter are dropped from the world and the log.
func (s *store) compact(w *world, now time.Time) error {
	w.forgetRecords(func(r *record) bool {
		return isPast(r.Gone, now.Add(-forgetAfter)) && (r.NodeEnded || r.Registered.IsZero())
	})
	var content bytes.Buffer
	encoder := json.NewEncoder(&content) // the encoder ends each value with a line break
	if err := encoder.Encode(logEntry{Kind: summary, Counters: &w.counters, Next: w.next}); err != nil {
		return fmt.Errorf("encode summary: %w", err)
	}
	for _, number := range w.order {
		if err := encoder.Encode(logEntry{Kind: kept, Record: w.records[number], UserData: w.userData[number]}); err != nil {
			return fmt.Errorf("encode instance: %w", err)
		}
	}
	// The file is renamed while it is open, so that no entry can be written to the old log.
	path := filepath.Join(s.dir, logFile)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open new log: %w", err)
	}
	if _, err = file.Write(content.Bytes()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("put new log in place: %w", err)
	}
	if s.file != nil {
		_ = s.file.Close()
	}
	s.file = file
	s.size = int64(content.Len())
	s.next = max(compactAbove, 2*s.size) // twice: a large world is not rewritten with each change
	return nil
}

// append adds one entry to the log. After an error the log is unchanged.
func (s *store) append(e logEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry: %w", err)
	}
	line = append(line, '\n')
	if _, err := s.file.Write(line); err != nil {
		_ = s.file.Truncate(s.size) // a partial line, for example on a full disk, would damage the next one
		return fmt.Errorf("write log: %w", err)
	}
	s.size += int64(len(line))
	return nil
}

// replace replaces the content of a file completely or not at all.
func (s *store) replace(name string, content []byte) error {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("put %s in place: %w", name, err)
	}
	return nil
}

// read returns a file's content; nil if there is no such file.
func (s *store) read(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

func (s *store) close() error { return errors.Join(s.file.Close(), s.lock.Close()) }
