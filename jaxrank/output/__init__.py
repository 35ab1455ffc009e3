"""The output of a run: files, progress, labelled results, tables, pictures, reports."""
