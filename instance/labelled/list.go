package labelled

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxClasses is the maximum number of classes.
const maxClasses = 100_000

// list fills in images and labels from the directories below dir. Hidden files are left
// out.
func (s *Set) list(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := visible(root, ".")
	if err != nil {
		return err
	}
	classes, err := classesOf(names)
	if err != nil {
		return err
	}
	for i, name := range names {
		info, err := root.Stat(name)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory; put the images of each class into a directory of their own", name)
		}
		files, err := visible(root, name)
		if err != nil {
			return err
		}
		if len(s.images)+len(files) > MaxRows {
			return fmt.Errorf("there are more than %d images; give fewer", MaxRows)
		}
		for _, file := range files {
			if ending := strings.ToLower(path.Ext(file)); ending != ".jpg" && ending != ".jpeg" && ending != ".png" {
				return fmt.Errorf("%s/%s is neither a .jpg, .jpeg nor a .png file; remove it", name, file)
			}
			s.images, s.Labels = append(s.images, path.Join(name, file)), append(s.Labels, classes[i])
		}
	}
	return nil
}

// visible lists a directory by name.
func visible(root *os.Root, dir string) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// classesOf returns the number of each class. If all names are numbers, they are the
// classes' own. Otherwise the classes are numbered by name, as in torchvision.
func classesOf(names []string) ([]int, error) {
	if len(names) == 0 || len(names) > maxClasses {
		return nil, fmt.Errorf("it has %d directories; it needs one for each class, from 1 to %d", len(names), maxClasses)
	}
	byName, numbers := make([]int, len(names)), make([]int, len(names))
	for i, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n < 0 || n >= maxClasses {
			numbers = nil
		}
		if byName[i] = i; numbers != nil {
			numbers[i] = n
		}
	}
	if numbers == nil {
		return byName, nil
	}
	sorted := slices.Sorted(slices.Values(numbers))
	if len(slices.Compact(sorted)) < len(numbers) {
		return nil, errors.New("two directories have the same number, such as 1 and 01; give each class one directory")
	}
	return numbers, nil
}
