/tmp/venv/bin/python: can't open file '/work/wt/data/f_resume.py': [Errno 2] No such file or directory
