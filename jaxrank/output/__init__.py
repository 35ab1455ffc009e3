"""What a run leaves: files, progress, labelled results, tables, pictures, reports."""
