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

// The names of the files in the data folder.
const (
	logFileName       = "instances.log"
	behaviourFileName = "behaviour.json"
	lockFileName      = "lock"
)

// minCompactionBytes is the log size, in bytes, above which a running cloud compacts the log.
const minCompactionBytes = 32 << 20

// goneRecordLifetime is how long compactions keep the record of an instance that is gone. This time is longer than any
// useful staleness.
const goneRecordLifetime = 10 * time.Minute

// store keeps the cloud's state on disk as a log of JSON lines. Each change is one write. A killed process leaves
// complete lines, and at most one incomplete last line. The store ignores the incomplete line, because the cloud did
// not answer the call that wrote the line. The store does not call fsync: the log must survive the end of the process,
// but not a crash of the computer.
type store struct {
	dir                      string
	logFile                  *os.File
	logSizeBytes             int64 // size of all complete lines, in bytes
	compactionThresholdBytes int64 // size above which the cloud compacts the log
	lockFile                 *os.File
}

// openStore opens the data folder, rebuilds the state from the log and compacts the log. If another process has the
// folder open, openStore returns an error.
func openStore(dir string, now time.Time) (*store, *cloudState, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFileName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, nil, fmt.Errorf("lock data folder %s, is another virtualcloud running there: %w", dir, err)
	}
	s := &store{dir: dir, lockFile: lock}
	w, err := s.loadState()
	if err == nil {
		err = s.compactLog(w, now)
	}
	if err != nil {
		_ = lock.Close()
		return nil, nil, err
	}
	return s, w, nil
}

// loadState rebuilds the state from the log, and ignores an incomplete last line.
func (s *store) loadState() (*cloudState, error) {
	w := newCloudState()
	file, err := os.Open(filepath.Join(s.dir, logFileName))
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
			return w, nil // a last line without a line break is an incomplete write
		}
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
		var e logEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of log: %w", number, err)
		}
		if (e.Kind == entrySummary) != (e.Counters != nil) || (e.Kind == entrySummary) == (e.Record != nil) {
			return nil, fmt.Errorf("read line %d of log: it is no entry", number)
		}
		w.applyEntry(e)
	}
}

// compactLog writes the state as a new log, replaces the old log atomically, and opens the new log for appending.
// compactLog drops instances that have been gone for goneRecordLifetime.
func (s *store) compactLog(w *cloudState, now time.Time) error {
	w.removeRecords(func(r *instanceRecord) bool {
		return isPast(r.GoneAt, now.Add(-goneRecordLifetime)) && (r.NodeSyncFinished || r.RegisteredAt.IsZero())
	})
	var content bytes.Buffer
	encoder := json.NewEncoder(&content) // Encode ends each value with a line break
	if err := encoder.Encode(
		logEntry{Kind: entrySummary, Counters: &w.counters, NextInstanceNumber: w.nextInstanceNumber},
	); err != nil {
		return fmt.Errorf("encode summary: %w", err)
	}
	for _, number := range w.recordNumbers {
		if err := encoder.Encode(
			logEntry{Kind: entryKept, Record: w.records[number], UserData: w.userData[number]},
		); err != nil {
			return fmt.Errorf("encode instance: %w", err)
		}
	}
	// The new file is open before the rename, so that no entry can go to the old log.
	path := filepath.Join(s.dir, logFileName)
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
	if s.logFile != nil {
		_ = s.logFile.Close()
	}
	s.logFile = file
	s.logSizeBytes = int64(content.Len())
	// factor 2, so that a large log is not compacted at each change
	s.compactionThresholdBytes = max(minCompactionBytes, 2*s.logSizeBytes)
	return nil
}

// appendEntry appends one entry to the log. After an error, the log is unchanged.
func (s *store) appendEntry(e logEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry: %w", err)
	}
	line = append(line, '\n')
	if _, err := s.logFile.Write(line); err != nil {
		_ = s.logFile.Truncate(s.logSizeBytes) // a partial line, for example on a full disk, would corrupt the next line
		return fmt.Errorf("write log: %w", err)
	}
	s.logSizeBytes += int64(len(line))
	return nil
}

// replaceFile replaces the content of a file atomically.
func (s *store) replaceFile(name string, content []byte) error {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("put %s in place: %w", name, err)
	}
	return nil
}

// readFile returns a file's content; nil if the file does not exist.
func (s *store) readFile(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

func (s *store) close() error { return errors.Join(s.logFile.Close(), s.lockFile.Close()) }
