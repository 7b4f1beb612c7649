// Blocks of code and tables scroll where they are wider than the page: by keyboard, too.
for (const block of document.querySelectorAll("main pre > code, main .table-wrapper")) block.tabIndex = 0;
