"""What users type and read: words and options of targets, questions and answers, text, tables and pages."""
