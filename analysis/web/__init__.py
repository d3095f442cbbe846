"""What pages are made of: styles and scripts, and the document that holds them."""
