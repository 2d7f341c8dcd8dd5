"""Files and folders that appear as a whole, and survive a crash."""
