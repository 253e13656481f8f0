"""What a person keeps of a study: one HTML file, Markdown, JSON, CSV. Built from stored rows alone."""
