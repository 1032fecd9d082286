package host

import "os"

// Own notes that what is in a directory is to end with this process.
func Own(dir string) error {
	pid := os.Getpid()
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return owner(dir).remember(identity{pid, started})
}

// Abandoned reports whether what is in a directory was to end with a process that has ended
// and left it: that was killed.
func Abandoned(dir string) bool {
	p := owner(dir)
	_, err := os.Stat(p.file())
	return err == nil && p.PID() == 0
}

func owner(dir string) *process { return newProcess(dir, "owner") }
